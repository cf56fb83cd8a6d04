#!/bin/bash
# Certificates for Ray's connections between machines: one authority and one certificate a machine, for a year.
#
#     certificates.sh FOLDER NAME=ADDRESS [NAME=ADDRESS …]      # for example: certificates.sh tls head=10.0.0.1 node2=10.0.0.2
#
# FOLDER (mode 0700) gets ca.crt, ca.key, NAME.crt, NAME.key and NAME.env. Called again, it adds machines, signed by the same
# authority. Give a machine ca.crt and its own three files, never ca.key. docs/security.md says how to use them.
set -eu
if [ $# -lt 2 ]; then
  sed -n 's/^#     //p' "$0" >&2
  exit 2
fi
refuse() { echo "a machine must be NAME=ADDRESS, got $1" >&2; exit 2; }
for pair in "${@:2}"; do
  case $pair in *[!A-Za-z0-9.:=_-]* | =* | *= | *=*=* | ca=*) refuse "$pair" ;; *=*) ;; *) refuse "$pair" ;; esac
done
command -v openssl >/dev/null || { echo "openssl is not installed" >&2; exit 1; }
umask 077
mkdir -p "$1"
cd "$1"
folder=$PWD
days=365

quietly() { openssl "$@" 2>.errors || { cat .errors >&2; exit 1; }; }

if [ ! -e ca.key ]; then
  quietly req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "$days" -subj "/CN=Ray's own authority" -keyout ca.key -out ca.crt \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
fi
for pair in "${@:2}"; do
  name=${pair%%=*} address=${pair#*=}
  case $address in *:*) kind=IP ;; *[!0-9.]*) kind=DNS ;; *) kind=IP ;; esac
  # Ray's processes on a machine reach each other under 127.0.0.1 and localhost; each is server and client
  printf 'subjectAltName=DNS:%s,DNS:localhost,IP:127.0.0.1,%s:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$name" "$kind" "$address" >"$name.ext"
  quietly req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout "$name.key" -out "$name.csr"
  quietly x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -extfile "$name.ext" -out "$name.crt"
  rm "$name.csr" "$name.ext"
  printf 'export RAY_USE_TLS=1\nexport RAY_TLS_CA_CERT=%q\nexport RAY_TLS_SERVER_CERT=%q\nexport RAY_TLS_SERVER_KEY=%q\n' \
    "$folder/ca.crt" "$folder/$name.crt" "$folder/$name.key" >"$name.env"
done
rm -f .errors
