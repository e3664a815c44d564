# shellcheck shell=bash
# Starts the programs of units without systemd: as the unit's user, without privileges, with the unit's environment and its
# copy of the settings. What else a unit says of the process (files, system calls, limits) is not applied.

declare -A pid_of=()

# unit_says NAME KEY: each value of a key in the unit's file in $root, with the specifiers that our units use filled in.
unit_says() {
  local file=$1 instance=''
  if [[ $1 == *@* ]]; then file=${1%@*}@ instance=${1#*@}; fi
  sed -n "s/^$2=//p" "$root/usr/lib/systemd/system/$file.service" | sed "s|%i|$instance|g; s|%d|/run/credentials/$1.service|g"
}

# unit_command NAME: sets command, which runs the unit's program in the system.
unit_command() {
  local credentials=/run/credentials/$1.service file variables user
  user=$(unit_says "$1" User)
  # shellcheck disable=SC2016
  in_system sh -euc 'install -d -m 700 "$1"; install -m 400 "$2" "$1/webhooks.toml"; chown -R "$3" "$1"' \
    credentials "$credentials" /etc/webhooks/webhooks.toml "$user"
  mapfile -t variables < <(unit_says "$1" Environment)
  file=$(unit_says "$1" EnvironmentFile)
  if [ -e "$root${file#-}" ]; then mapfile -t -O "${#variables[@]}" variables <"$root${file#-}"; fi
  mapfile -t command < <(unit_says "$1" ExecStart | tr ' ' '\n')
  command=(env "${variables[@]}" setpriv --reuid "$user" --regid "$(unit_says "$1" Group)" --clear-groups
    --no-new-privs --inh-caps=-all --bounding-set=-all "${command[@]}")
}

# run_unit NAME: a unit that comes to an end.
run_unit() {
  local command
  unit_command "$1"
  in_system "${command[@]}"
}

# start_unit NAME: in the background; its log is $folder/NAME.log.
start_unit() {
  local command
  unit_command "$1"
  "${enter[@]}" "${command[@]}" >"$folder/$1.log" 2>&1 &
  pid_of[$1]=$!
}

# stop_units: asks all of them to stop. Each must end well within its time.
stop_units() {
  local unit code deadline began=$SECONDS
  kill -TERM "${pid_of[@]}"
  for unit in "${!pid_of[@]}"; do
    deadline=$(unit_says "$unit" TimeoutStopSec)
    while kill -0 "${pid_of[$unit]}" 2>/dev/null; do
      [ $((SECONDS - began)) -le "${deadline%s}" ] || die "$unit did not stop within $deadline"
      sleep 0.1
    done
    code=0
    wait "${pid_of[$unit]}" || code=$?
    [ "$code" -eq 0 ] || die "$unit ended with $code: $(tail -n 3 "$folder/$unit.log")"
    unset "pid_of[$unit]"
  done
}

# kill_units: whatever still runs when the check fails.
kill_units() {
  if [ "${#pid_of[@]}" -gt 0 ]; then kill -KILL "${pid_of[@]}" 2>/dev/null || true; fi
}
