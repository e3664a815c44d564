# shellcheck shell=bash
# Boots the system in $root: its systemd as process 1 of namespaces of its own. It shares the network with this machine. It
# ends with `boot_down`, or when this script ends.

boot_pid='' boot_group=''
# What runs a command in the booted system.
booted=()

# Runs as root, in the control group of the system.
# shellcheck disable=SC2016
boot_script='
set -eu
root=$1 console=$2
hostname package-check
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
if [ -d /sys/fs/cgroup/systemd ]; then
  mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
  mkdir "$root/sys/fs/cgroup/systemd"
  mount -t cgroup -o none,name=systemd systemd "$root/sys/fs/cgroup/systemd"
else
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$root/dev/console"
mount --bind "$console" "$root/dev/console"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
# Not by chroot: in one, no namespace of users can be made.
cd "$root"
pivot_root . mnt
umount -l /mnt
# In a container, systemd leaves that to who made it. Copies of settings reach a service by it (LoadCredential).
mount --make-rshared /
exec env -i container=package-check PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --log-target=console systemd.unit=multi-user.target'

# boot_up CONSOLE: fails where that is not possible. CONSOLE gets what the system says.
boot_up() {
  local groups=/sys/fs/cgroup deadline=$((SECONDS + 20)) child='' state
  [ ! -d "$groups/systemd" ] || groups=$groups/systemd
  boot_group=$groups/package-check.$$
  : >"$1"
  mkdir "$boot_group" 2>/dev/null || return 1
  # shellcheck disable=SC2094
  sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' boot "$boot_group" \
    unshare --mount --propagation private --pid --fork --kill-child --uts --ipc --cgroup \
    sh -c "$boot_script" boot "$root" "$1" </dev/null >>"$1" 2>&1 &
  boot_pid=$!
  while [ "$SECONDS" -lt "$deadline" ] && kill -0 "$boot_pid" 2>/dev/null; do
    child=$(cat "/proc/$boot_pid/task/$boot_pid/children" 2>/dev/null || true)
    child=${child%% *}
    if [ -n "$child" ]; then
      booted=(nsenter --target "$child" --mount --pid --uts --ipc --cgroup --root --wd)
      state=$(timeout 5 "${booted[@]}" systemctl is-system-running 2>/dev/null || true)
      case $state in running | degraded) return 0 ;; esac
    fi
    sleep 0.3
  done
  boot_down
  return 1
}

boot_down() {
  if [ -n "$boot_pid" ]; then
    kill -KILL "$boot_pid" 2>/dev/null || true
    wait "$boot_pid" 2>/dev/null || true
  fi
  # Its processes have ended; the kernel takes a moment.
  local tries
  for tries in {1..20}; do
    find "$boot_group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [ -d "$boot_group" ] || break
    sleep "0.$tries"
  done
  boot_pid='' booted=()
}

# boot_start UNIT...: as systemd starts them.
boot_start() {
  "${booted[@]}" systemctl start "$@" && return 0
  "${booted[@]}" journalctl --no-pager -n 30 >&2
  die "systemd cannot start $*"
}

# What systemd has made of a service's process.
boot_check() {
  local pid status
  pid=$("${booted[@]}" systemctl show -P MainPID "$1")
  status=$("${booted[@]}" grep -E '^(NoNewPrivs|Seccomp|CapBnd):' "/proc/$pid/status")
  [[ $status == *$'NoNewPrivs:\t1'* && $status == *$'Seccomp:\t2'* && $status == *$'CapBnd:\t0000000000000000'* ]] \
    || die "$1 may do more than its unit says: $status"
  [ "$("${booted[@]}" stat -c %U "/proc/$pid")" = webhooks ] || die "$1 does not run as webhooks"
}

# boot_restarts UNIT: one that is killed is started again.
boot_restarts() {
  local deadline=$((SECONDS + 30))
  "${booted[@]}" systemctl kill --signal=KILL "$1"
  until [ "$("${booted[@]}" systemctl show -P NRestarts "$1")" = 1 ] && "${booted[@]}" systemctl -q is-active "$1"; do
    [ "$SECONDS" -lt "$deadline" ] || die "$1 was killed and is not started again"
    sleep 0.2
  done
}

# boot_stays_down UNIT: one whose settings cannot be used is not started again and again.
boot_stays_down() {
  local deadline=$((SECONDS + 30))
  "${booted[@]}" systemctl start "$1" || true
  until "${booted[@]}" systemctl -q is-failed "$1"; do
    [ "$SECONDS" -lt "$deadline" ] || die "$1 does not end with settings that cannot be used"
    sleep 0.2
  done
  [ "$("${booted[@]}" systemctl show -P ExecMainStatus "$1")" = 2 ] || die "$1 did not end for its settings"
}

# boot_stop UNIT...: each must end by itself, in time.
boot_stop() {
  local unit
  "${booted[@]}" systemctl stop "$@"
  for unit in "$@"; do
    [ "$("${booted[@]}" systemctl show -P Result "$unit")" = success ] || die "$unit did not stop well"
  done
}
