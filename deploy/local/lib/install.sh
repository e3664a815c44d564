# shellcheck shell=bash
# The distribution's packages, installed only if missing and without starting any service.

# Runs as root. A package's own start-up of its service is refused by policy-rc.d, which is
# created only if there is none and removed again whatever happens.
# root_script installs packages; root_start is its part before the installation.
# shellcheck disable=SC2016
root_start='
set -eu
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap "rm -f $policy" EXIT
  trap "exit 1" HUP INT TERM
  printf "#!/bin/sh\nexit 101\n" >"$policy"
  chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q -o DPkg::Lock::Timeout=300 update
'
# shellcheck disable=SC2016
root_script=$root_start'
apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install "$@"
'

# root_without_question: how to become root, in as_root; fails when that takes a question.
root_without_question() {
  as_root=()
  [ "$(id -u)" -eq 0 ] && return 0
  as_root=(sudo -n)
  sudo -n true 2>/dev/null
}

# try_install WHO LOG PACKAGES...: what only tests need. Succeeds even where nothing can be installed: the caller looks.
try_install() {
  local who=$1 log=$2 as_root
  shift 2
  if ! command -v apt-get >/dev/null || ! root_without_question; then return 0; fi
  echo "$who: installing $*"
  timeout 300 "${as_root[@]}" sh -c "$root_script" "$who" "$@" </dev/null >>"$log" 2>&1 || true
  hash -r
}

# install_missing DATABASE_URL AMQP_URL: a server whose URL is given is not needed here.
install_missing() {
  local packages=() as_root=()
  [ -n "$1" ] || find_postgres || packages+=(postgresql)
  [ -n "$2" ] || find_rabbitmq || packages+=(rabbitmq-server)
  [ "${#packages[@]}" -gt 0 ] || return 0

  local advice="install these packages, then run this again: ${packages[*]}
  on Debian or Ubuntu: apt-get install --no-install-recommends ${packages[*]}
  or give running servers in DATABASE_URL and AMQP_URL"
  command -v apt-get >/dev/null || die "$advice"
  if ! root_without_question; then
    if [ ! -t 0 ] || ! command -v sudo >/dev/null; then die "$advice"; fi
    as_root=(sudo)
  fi

  say "installing ${packages[*]}"
  if ! "${as_root[@]}" sh -c "$root_script" stack "${packages[@]}" </dev/null >>"$stack_dir/log/install.log" 2>&1; then
    tail -n 25 "$stack_dir/log/install.log" >&2
    die "the installation failed (the whole story: $stack_dir/log/install.log); $advice"
  fi
  hash -r
  [ -n "$1" ] || find_postgres || die "no PostgreSQL server found although it was installed"
  [ -n "$2" ] || find_rabbitmq || die "no RabbitMQ server found although it was installed"
}
