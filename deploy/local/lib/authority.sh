# shellcheck shell=bash
# The development authority: it signs the certificates of `webhookctl listen`, and the services of `make run` trust it.

# Makes it once. Without openssl (a part of what PostgreSQL's packages bring) there is none: then `webhookctl listen`
# makes its own and says what the services need.
make_authority() {
  local folder=$stack_dir/authority
  [ ! -e "$folder/authority.pem" ] || return 0
  command -v openssl >/dev/null || { say "openssl is missing: no development authority for webhookctl listen"; return 0; }
  mkdir -p "$folder"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 -days 3650 \
    -subj '/CN=Development authority of the webhook service' \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout "$folder/authority.key" -out "$folder/authority.new" 2>"$stack_dir/log/authority.log" ||
    die_with_log "$stack_dir/log/authority.log" "the development authority cannot be made"
  mv "$folder/authority.new" "$folder/authority.pem"
}
