# shellcheck shell=bash
# Libraries of the tools, in virtual environments of Python and in Node's folders below $stack_dir.

declare -A libraries_of=(
  [python]='receivers/venv clients/venv'
  [node]='receivers/node_modules clients/node_modules'
  [axe]='axe/node_modules'
)

# Packages from PyPI and npm. openapi-python-client brings what its clients import (httpx, attrs) and its formatter (ruff).
declare -A packages_of=(
  [receivers/venv]='standardwebhooks>=1.0,<2 pika>=1.3,<2 psycopg[binary]>=3.1,<4 jsonschema[format]>=4.18,<5'
  [clients/venv]='openapi-python-client==0.29.*'
  [receivers/node_modules]='standardwebhooks@1 amqplib@0.10 pg@8 ajv@8 ajv-formats@3'
  [clients/node_modules]='openapi-typescript@7 openapi-fetch@0.17 typescript@5 @types/node@20'
  [axe/node_modules]='axe-core@4'
)

# fingerprint LIBRARY: what an installation depends on. A virtual environment works with one Python, at one place.
fingerprint() {
  [[ $1 != */venv ]] || { echo "$stack_dir/$1"; realpath -q "$stack_dir/$1/bin/python" || true; }
  echo "${packages_of[$1]}"
}

# is_installed LIBRARY: reads the stamp only, which is written after a check of the imports.
is_installed() {
  local stamp=$stack_dir/$1/.installed
  [ -r "$stamp" ] && [ "$(<"$stamp")" = "$(fingerprint "$1")" ]
}

# log_of LIBRARY
log_of() {
  local folder=$stack_dir/${1%/*}
  if [[ $1 == */venv ]]; then echo "$folder/python.log"; else echo "$folder/node.log"; fi
}

# command_of LIBRARY: prints the command that installs it, which is the one that make_library runs.
command_of() {
  local path=$stack_dir/$1 wanted
  read -ra wanted <<<"${packages_of[$1]}"
  if [[ $1 == */venv ]]; then
    echo "python3 -m venv --clear ${path@Q} && ${path@Q}/bin/pip install --disable-pip-version-check ${wanted[*]@Q}"
  else
    path=${path%/*}
    echo "npm install --no-fund --no-audit --prefix ${path@Q} ${wanted[*]@Q}"
  fi
}

# write_package_json LIBRARY: npm compares installed versions with its dependencies. Clients are ES modules, for Node and
# for tsc.
write_package_json() {
  local wanted package type='' separator=''
  read -ra wanted <<<"${packages_of[$1]}"
  [[ $1 != clients/* ]] || type='"type": "module", '
  {
    echo "{\"private\": true, $type\"dependencies\": {"
    for package in "${wanted[@]}"; do
      echo "$separator\"${package%@*}\": \"${package##*@}\""
      separator=', '
    done
    echo '}}'
  } >"$stack_dir/${1%/*}/package.json"
}

# has_versions LIBRARY: whether the installed packages are the wanted ones; without a network. The programs of a moved
# virtual environment name its former place, and do not run.
has_versions() {
  local path=$stack_dir/$1 wanted
  read -ra wanted <<<"${packages_of[$1]}"
  if [[ $1 == */venv ]]; then
    grep -qF "$path/bin/python" "$path/bin/pip" &&
      "$path/bin/pip" install --quiet --disable-pip-version-check --no-index "${wanted[@]}"
  else
    npm ls --depth=0 --prefix "${path%/*}"
  fi
}

# works LIBRARY: whether the wanted versions are installed, and can be imported.
works() {
  local path=$stack_dir/$1
  has_versions "$1" || return 1
  case $1 in
    receivers/venv) "$path/bin/python" -c 'import standardwebhooks, pika, psycopg, jsonschema, rfc3339_validator' ;;
    clients/venv) "$path/bin/ruff" --version && "$path/bin/python" -c 'import openapi_python_client, httpx, attrs' ;;
    receivers/node_modules) imports_modules "$path" standardwebhooks amqplib pg ajv ajv-formats ;;
    clients/node_modules)
      node "$path/openapi-typescript/bin/cli.js" --version && node "$path/typescript/bin/tsc" --version &&
        [ -d "$path/@types/node" ] && imports_modules "$path" openapi-fetch
      ;;
    axe/node_modules) [ -f "$path/axe-core/axe.min.js" ] ;;
  esac
}

# imports_modules PATH MODULES...
imports_modules() (
  cd "$1/.."
  shift
  exec node -e 'Promise.all(process.argv.slice(1).map((name) => import(name))).catch((error) => {
    console.error(error)
    process.exit(1)
  })' "$@"
)

# begin LIBRARY: makes its folder, and removes its stamp. Fails when the folder cannot be written.
begin() {
  local path=$stack_dir/$1
  mkdir -p "${path%/*}" 2>/dev/null && [ -w "${path%/*}" ] || return 1
  rm -f "$path/.installed"
  [[ $1 == */venv ]] || write_package_json "$1"
}

# adopt_library LIBRARY: stamps a library that is installed without a stamp, for example by hand.
adopt_library() {
  [ -d "$stack_dir/$1" ] && begin "$1" || return 0
  if works "$1" >/dev/null 2>&1 </dev/null; then fingerprint "$1" >"$stack_dir/$1/.installed"; fi
}

# install_library LIBRARY: succeeds even when the library cannot be installed: the caller looks for the stamp. No half of an
# installation is left.
install_library() {
  local path=$stack_dir/$1 program=npm
  begin "$1" || return 0
  [[ $1 != */venv ]] || program=python3
  if ! type -P "$program" >/dev/null; then
    echo "$program is missing" >"$(log_of "$1")"
    return 0
  fi
  say "installing the libraries of $path"
  rm -rf "$path" "${path%/*}/package-lock.json"
  if { timeout 600 bash -c "$(command_of "$1")" && works "$1"; } >"$(log_of "$1")" 2>&1 </dev/null; then
    fingerprint "$1" >"$path/.installed"
  else
    rm -rf "$path"
  fi
}
