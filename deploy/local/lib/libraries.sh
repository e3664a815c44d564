# shellcheck shell=bash
# The libraries that are part of our programs, with their licences.

# libraries CRATE...: prints each library that these crates contain, with its version and licence, then every licence's
# text once, with the libraries that have it. Reads what cargo has downloaded; run it in the repository.
libraries() {
  local arguments=() crate registry list text sum
  for crate in "$@"; do arguments+=(-p "$crate"); done
  list=$(cargo tree --locked --offline "${arguments[@]}" --edges normal --prefix none --format '{p}|{l}' \
    | sed 's/ (\*)$//; s/ (proc-macro)//' | grep '|' | grep -v ' (/' | sort -u)
  echo "The programs contain these libraries, under these licences:"
  echo
  awk -F '|' '{sub(" v", " ", $1); print "  " $1 ": " $2}' <<<"$list"
  registry=${CARGO_HOME:-$HOME/.cargo}/registry/src
  declare -A of_text=() file_of=()
  while IFS='|' read -r crate _; do
    crate=${crate/ v/-}
    for text in "$registry"/*/"$crate"/{LICENSE,LICENCE,COPYING,COPYRIGHT,NOTICE,UNLICENSE}*; do
      [ -f "$text" ] || continue
      sum=$(tr -s '[:space:]' ' ' <"$text" | sha256sum | cut -d ' ' -f 1)
      file_of[$sum]=$text
      of_text[$sum]+=" $crate"
    done
  done <<<"$list"
  for sum in $(printf '%s\n' "${!of_text[@]}" | sort); do
    printf '\n%s\nof%s\n\n' "$(printf '=%.0s' {1..100})" "${of_text[$sum]}"
    tr -d '\r' <"${file_of[$sum]}"
  done
}
