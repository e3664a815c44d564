"""The manifests of one set of values, and the rules that they have to keep."""

RULES = []
PODS = ("Deployment", "Job", "Pod")


def rule(function):
    RULES.append(function)
    return function


class Manifests:
    """The manifests of one set of values, and the values."""

    def __init__(self, documents, values):
        self.documents, self.values = documents, values

    def of(self, *kinds):
        return [document for document in self.documents if document["kind"] in kinds]

    def value(self, path, default=None):
        found = self.values
        for key in path.split("."):
            found = (found or {}).get(key)
        return default if found is None else found

    def pods(self):
        """(document, labels, pod spec, container) of whatever makes pods."""
        for document in self.of(*PODS):
            pod = document if document["kind"] == "Pod" else document["spec"]["template"]
            yield document, pod["metadata"]["labels"], pod["spec"], pod["spec"]["containers"][0]

    def deployments(self):
        for document, labels, spec, container in self.pods():
            if document["kind"] == "Deployment":
                yield labels["app.kubernetes.io/component"], document, spec, container

    def selected(self, selector):
        """The components whose pods a selector takes."""
        return {labels["app.kubernetes.io/component"] for _, labels, _, _ in self.pods() if selects(selector, labels)}


def selects(selector, labels):
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        wanted = wanted and labels.get(expression["key"]) in expression["values"]
    return wanted


def variables(container):
    return {variable["name"]: variable for variable in container["env"]}
