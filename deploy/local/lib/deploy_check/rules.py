"""What must hold for every set of manifests, whatever the values. Each rule yields what is wrong."""

from . import pods, scaling, traffic, watching
from .manifests import RULES, Manifests
from .scaling import prometheus_triggers

__all__ = ["RULES", "Manifests", "pods", "prometheus_triggers", "scaling", "traffic", "watching"]
