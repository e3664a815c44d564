# shellcheck shell=bash
# Programs of the tools, and the distribution's packages that contain the programs.

# PROGRAM=PACKAGE of each tool. Programs that only install libraries are added by examine.
declare -A programs=(
  [python]='python3=python3'
  [node]='node=nodejs'
  [go]='go=golang-go'
  [php]='php=php-cli'
  [chromium]='chromium=chromium chromedriver=chromium-driver'
  [prometheus]='prometheus=prometheus promtool=prometheus'
  [pgbouncer]='pgbouncer=pgbouncer'
  [shellcheck]='shellcheck=shellcheck'
  [axe]=''
)

# Runs as root: installs the packages that can be installed, in one call. A package that the system does not know does not
# prevent the others, and npm is left out beside a nodejs that contains npm.
# shellcheck disable=SC2016,SC2154
packages_script=$root_start'
for package; do
  shift
  if apt-get -qq -s --no-install-recommends install "$package" >/dev/null; then set -- "$@" "$package"; fi
done
[ $# -eq 0 ] || apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install "$@"
'

# Ordinary users often have no /usr/sbin in the path; the tests find PgBouncer there.
has_program() {
  type -P "$1" >/dev/null || { [ "$1" = pgbouncer ] && [ -x /usr/sbin/pgbouncer ]; }
}

# need PROGRAM PACKAGE: adds a missing program to absent, and its package to packages.
need() {
  if has_program "$1" || is_one_of "$1" "${absent[@]}"; then return; fi
  absent+=("$1")
  add_package "$2"
}

add_package() {
  is_one_of "$1" "${packages[@]}" || packages+=("$1")
}

# examine TOOL: sets absent (the missing programs), packages (the packages to install), and unready (the libraries to
# install). Nothing is slow when nothing is missing.
examine() {
  local tool=$1 pair library
  absent=() packages=() unready=()
  for pair in ${programs[$tool]}; do need "${pair%=*}" "${pair#*=}"; done
  for library in ${libraries_of[$tool]-}; do is_installed "$library" || unready+=("$library"); done
  [ "${#unready[@]}" -gt 0 ] || return 0
  case $tool in
    python) python3 -c 'import ensurepip, venv' 2>/dev/null || add_package python3-venv ;;
    *)
      # With SKIP=node, axe does not install packages of node either.
      if ! is_left_out node; then need node nodejs; need npm npm; fi
      ;;
  esac
}

# install_packages PACKAGES...: installs all of them in one call. Succeeds even when a package cannot be installed: the
# caller examines the tools again. Sets not_tried to the reason when nothing was tried.
install_packages() {
  local as_root
  if ! type -P apt-get >/dev/null; then
    not_tried='this system has no apt-get'
  elif ! root_without_question; then
    not_tried='this needs root, or sudo without a password'
  else
    say "installing $*"
    "${as_root[@]}" timeout 1800 sh -c "$packages_script" tools "$@" </dev/null >"$packages_log" 2>&1 || true
    hash -r
  fi
}
