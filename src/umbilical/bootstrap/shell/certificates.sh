#!/usr/bin/env bash
# Creates the tunnel's certificates: agents dial ADDRESS; DIRECTORY gets server/ and agent/ with ca.crt, tls.crt and
# tls.key each, valid from one hour ago until HOURS from now. The key of the CA that signs them is deleted: it never
# signs anything else. bootkube.sh runs this as a program: sourced, its failures would go into the service record.
set -euo pipefail
umask 077

if [ "$#" -ne 3 ] || [ -z "$1" ] || [ "$1" = null ]; then
    echo "usage: $0 ADDRESS DIRECTORY HOURS" >&2
    exit 2
fi
address=$1
directory=$2
hours=$3
scratch="${directory}.new"

# The clocks of machines that are being installed differ. Of openssl's commands only `ca` can backdate.
start=$(date -u -d '1 hour ago' +%Y%m%d%H%M%SZ)
end=$(date -u -d "${hours} hours" +%Y%m%d%H%M%SZ)

# Prints the output of a command only if it fails.
quietly() {
    "$@" >"${scratch}/openssl.log" 2>&1 || {
        cat "${scratch}/openssl.log" >&2
        return 1
    }
}

make_request() {
    quietly openssl req -new -newkey rsa:2048 -nodes -sha256 -config "${scratch}/openssl.cnf" \
        -subj "/O=openshift/CN=konnectivity-$1" -keyout "${scratch}/$1.key" -out "${scratch}/$1.csr"
}

sign() {
    quietly openssl ca -batch -notext -md sha256 -config "${scratch}/openssl.cnf" -extensions "$1" \
        -startdate "${start}" -enddate "${end}" -in "${scratch}/$1.csr" -out "${scratch}/$1.crt" \
        -keyfile "${scratch}/signer.key" "${@:2}"
}

rm -rf "${scratch}"
mkdir -p "${scratch}/issued" "${scratch}/tree/server" "${scratch}/tree/agent"
: >"${scratch}/index"
cat >"${scratch}/openssl.cnf" <<EOF
[req]
distinguished_name = no_questions
[no_questions]
[ca]
default_ca = tunnel
[tunnel]
database = ${scratch}/index
new_certs_dir = ${scratch}/issued
unique_subject = no
rand_serial = yes
policy = names
[names]
organizationName = supplied
commonName = supplied
[signer]
basicConstraints = critical, CA:true
keyUsage = critical, digitalSignature, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth
subjectAltName = IP:${address}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
[agent]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
EOF

make_request signer
sign signer -selfsign
for role in server agent; do
    make_request "${role}"
    sign "${role}" -cert "${scratch}/signer.crt"
    cp "${scratch}/signer.crt" "${scratch}/tree/${role}/ca.crt"
    mv "${scratch}/${role}.crt" "${scratch}/tree/${role}/tls.crt"
    mv "${scratch}/${role}.key" "${scratch}/tree/${role}/tls.key"
done
rm -f "${scratch}/signer.key"

rm -rf "${directory}"
mv -T "${scratch}/tree" "${directory}"
rm -rf "${scratch}"

# For the journal, read from the certificate itself.
until=$(openssl x509 -in "${directory}/server/tls.crt" -noout -enddate)
echo "Generated Konnectivity certificates in ${directory} for ${address}, valid until ${until#notAfter=}"
