#!/bin/sh
# Makes what docker-compose.yml reads: .env from its example, and secrets/ with the model's key (asked for on the
# terminal, or read from standard input) and a key of the gateway. What is there stays as it is.
set -eu
cd "$(dirname "$0")/.."
umask 077
[ -e .env ] || cp deploy/.env.example .env
mkdir -p -m 700 secrets
# Compose cannot start with a file that is named and missing.
change() { sed "$1" .env > secrets/.env && cat secrets/.env > .env && rm secrets/.env; }
if [ ! -e secrets/model-key ]; then
  if [ -t 0 ]; then
    printf 'Key of the model (nothing is shown; empty if your server needs none): ' >&2
    trap 'stty echo' EXIT
    trap 'exit 130' INT TERM
    stty -echo
  fi
  read -r key || true
  if [ -t 0 ]; then echo >&2; fi
  if [ -n "$key" ]; then
    # Containers read it as another user; the folder is closed to everybody else on this machine.
    printf %s "$key" > secrets/model-key
    chmod 444 secrets/model-key
    change 's|^# \(COMBEE_API_KEY_FILE=\./secrets/model-key\)$|\1|'
  else
    change 's|^COMBEE_API_KEY_FILE=\./secrets/model-key$|# &|'
    echo "no key of the model: COMBEE_API_KEY_FILE is a comment in .env now; run this again to give a key" >&2
  fi
fi
sh deploy/gateway-key secrets/gateway-keys.toml
# Files are believed that belong to root or to the user of the services.
if [ "$(id -u)" != 0 ] && ! grep -q '^COMBEE_USER=' .env; then
  echo "COMBEE_USER=$(id -u)" >> .env
fi
echo "secrets/gateway-keys.toml has the gateway's key; name your model in .env" >&2
