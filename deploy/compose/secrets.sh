#!/usr/bin/env bash
# Makes the files of secrets/ that compose.yaml hands to the containers, with passwords
# that nobody has seen. What is there already stays.
set -euo pipefail
cd "$(dirname "$0")"

mkdir -p secrets
chmod 711 secrets
umask 077
password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
keep() { if [ -e "secrets/$1" ]; then cat >/dev/null; else cat >"secrets/$1"; fi; }

password | keep password # of the Redis that clients see
password | keep lock-password
password | keep admin-password
data=$(cat secrets/password)
locks=$(cat secrets/lock-password)

echo "redis://:$data@redis:6379" | keep upstream
for n in 1 2 3 4 5; do echo "redis://locks:$locks@lock$n:6379"; done | keep lock-nodes
echo "user default on >$data ~* &* +@all" | keep redis.acl
keep lock-node.acl <<EOF
user default off
user locks on >$locks ~lockproxy:* &lockproxy:* +evalsha +script|load +info +time +hmget +hset +hdel +hgetall +hkeys +hlen +get +set +del +pexpire +pttl +pexpireat +zadd +zcount +zrangebyscore +zremrangebyscore +zrem +zrevrange +zscore +publish +pubsub|numsub +subscribe +unsubscribe +ping +scan +wait
EOF
# The containers run as other users, to whom Compose passes the files as they are; the
# directory keeps others on this host from listing, not from reading, them.
chmod 644 secrets/upstream secrets/lock-nodes secrets/admin-password secrets/*.acl
chmod 600 secrets/password secrets/lock-password
