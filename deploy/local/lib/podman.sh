# shellcheck shell=bash
# podman, installed if it is missing, on machines that are containers or small virtual machines themselves.

# need_podman LOG: after it `podman` can be run, or the script has ended and said why. Sets CONTAINERS_CONF if need be.
need_podman() {
  command -v podman >/dev/null ||
    try_install podman "$1" podman buildah runc netavark aardvark-dns iptables
  command -v podman >/dev/null || die "podman is missing: install it, then run this again"
  # systemd's timers run health checks. Without systemd somebody has to ask: `podman healthcheck run`.
  [ -d /run/systemd/system ] || export DISABLE_HC_SYSTEMD=true
  # podman raises limits, which even root may not do everywhere.
  (ulimit -Hn 1048576) 2>/dev/null || lower_limits
}

lower_limits() {
  local files processes
  files=$(ulimit -Hn)
  processes=$(ulimit -Hu)
  [ "$processes" != unlimited ] && [ "$processes" -lt 30000 ] || processes=30000
  export CONTAINERS_CONF=$work/containers.conf
  cat >"$CONTAINERS_CONF" <<CONF
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
CONF
}
