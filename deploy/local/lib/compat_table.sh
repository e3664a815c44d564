# shellcheck shell=bash
# What passed on which servers: a row for each part in deploy/compat.md, and one for each pair of servers in
# deploy/README.md. Nobody else writes them.

# Reads a document, and prints it with what stands between its markers replaced by the file $1.
between_markers() {
  awk -v rows="$1" '
    /<!-- compat: end -->/ { within = 0 }
    !within { print }
    /<!-- compat: begin/ { within = 1; while ((getline line < rows) > 0) print line }'
}

# replace DOCUMENT ROWS
replace_rows() {
  between_markers "$2" <"$1" >"$1.new"
  mv "$1.new" "$1"
}

# table_write PART RESULT: today's row of this part on these servers takes the place of an older one.
table_write() {
  local details=$repository/deploy/compat.md servers="| $rabbitmq | $erlang | $postgres |" rows=$folder/rows
  {
    awk '/^<!-- compat: begin/{on = 1} /^<!-- compat: end/{on = 0} on && /^\| [0-9]/' "$details" |
      grep -vF "$servers $1 |" || true
    echo "$servers $1 | $2 | $(date -u +%F) |"
  } | sort -V >"$rows.sorted"
  { printf '| RabbitMQ | Erlang | PostgreSQL | part | result | date |\n|---|---|---|---|---|---|\n'; cat "$rows.sorted"; } >"$rows"
  replace_rows "$details" "$rows"
  {
    printf '| servers | demo | end-to-end tests | storm | not older than |\n|---|---|---|---|---|\n'
    table_summary <"$rows.sorted"
  } >"$folder/summary"
  replace_rows "$repository/deploy/README.md" "$folder/summary"
}

# From rows to a line for each pair of servers. The date is the oldest of its parts'.
table_summary() {
  awk -F ' *[|] *' '
    {
      pair = "RabbitMQ " $2 " on Erlang " $3 ", PostgreSQL " $4
      if (!(pair in since)) { order[++pairs] = pair; since[pair] = $7 }
      if ($7 < since[pair]) since[pair] = $7
      good = $6 ~ /^passed/
      if ($5 == "demo" || $5 == "storm") word[pair, $5] = good ? "passed" : "**failed**"
      else if (good) { split($6, said, " "); tests[pair] += said[2]; names[pair] = names[pair] " " $5 }
      else failed[pair] = failed[pair] " " $5
    }
    END {
      for (n = 1; n <= pairs; n++) {
        pair = order[n]
        line = tests[pair] ? tests[pair] " passed:" names[pair] : "not run"
        if (failed[pair] != "") line = line "; **failed**:" failed[pair]
        demo = (pair, "demo") in word ? word[pair, "demo"] : "not run"
        storm = (pair, "storm") in word ? word[pair, "storm"] : "not run"
        print "| " pair " | " demo " | " line " | " storm " | " since[pair] " |"
      }
    }'
}
