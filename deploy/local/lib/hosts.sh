# shellcheck shell=bash
# The hosts of a cluster: network namespaces on a bridge of their own, where the machine allows that.

# Sets hosts (namespaces or shared), tag and network of a cluster that is there.
recall_hosts() {
  hosts=shared tag='' network=''
  if [ -e "$cluster_dir/hosts" ]; then read -r hosts tag network <"$cluster_dir/hosts"; fi
}

# The same for a new one, and makes the hosts.
settle_hosts() {
  [ ! -e "$cluster_dir/hosts" ] || return 0
  local number third
  hosts=shared tag=$(random_hex 3) network=''
  if [ "${CLUSTER_HOSTS:-namespaces}" = namespaces ] && can_have_hosts; then
    # A network that is set aside for tests of networks (RFC 2544).
    for third in $(seq $((0x$tag % 200)) 254); do
      network=198.18.$third
      [ -n "$(ip -4 route show "$network.0/24")" ] || break
    done
    hosts=namespaces
  fi
  echo "$hosts $tag $network" >"$cluster_dir/hosts"
  [ "$hosts" = namespaces ] || return 0
  ip link add "wh$tag" type bridge
  ip addr add "$network.254/24" dev "wh$tag"
  ip link set "wh$tag" up
  for number in $(seq "$1"); do make_host "broker$number" "$number"; done
  for number in $(seq "$2"); do make_host "database$number" "$((10 + number))"; done
}

can_have_hosts() {
  [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null || return 1
  local probe=wh-probe-$tag
  ip netns add "$probe" 2>/dev/null || return 1
  local can=1
  if ip link add "wh$tag" type bridge 2>/dev/null; then
    ip link del "wh$tag"
    can=0
  fi
  ip netns del "$probe"
  return "$can"
}

address_of() { echo "$network.$1"; }
# The end of a host's cable, in the bridge.
cable_of() { echo "wh$tag$(tr -d '[:lower:]' <<<"$1")$(cut -c 1 <<<"$1")"; }
namespace_of() { echo "wh-$tag-$1"; }

make_host() {
  local namespace cable
  namespace=$(namespace_of "$1") cable=$(cable_of "$1")
  ip netns add "$namespace"
  ip link add "$cable" type veth peer name eth0 netns "$namespace"
  ip link set "$cable" master "wh$tag" up
  ip -n "$namespace" addr add "$(address_of "$2")/24" dev eth0
  ip -n "$namespace" link set eth0 up
  ip -n "$namespace" link set lo up
}

remove_hosts() {
  [ "$hosts" = namespaces ] || return 0
  local namespace
  for namespace in $(ip netns list | cut -d ' ' -f 1 | grep "^wh-$tag-" || true); do ip netns del "$namespace"; done
  ip link del "wh$tag" 2>/dev/null || true
}

# on_host NODE COMMAND...
on_host() {
  local node=$1
  shift
  if [ "$hosts" = namespaces ]; then ip netns exec "$(namespace_of "$node")" "$@"; else "$@"; fi
}

cut_off() {
  [ "$hosts" = namespaces ] || die "a node can be cut off only where it has a namespace: as root, on Linux"
  ip link set "$(cable_of "$1")" nomaster
}

put_back() { ip link set "$(cable_of "$1")" master "wh$tag"; }
