#!/usr/bin/env bash
# Makes the image that the Dockerfile builds in, where no registry can be reached: Debian
# by debootstrap, the Go of this machine and the authorities that it trusts. Root and
# buildah are needed. The image gets the name in the Dockerfile's FROM, so that a build
# finds it and pulls nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

tag=$(awk '$1 == "FROM" && / AS build$/ { print $2 }' Dockerfile)
goroot=$(go env GOROOT)
case "$tag" in
golang:"$(go env GOVERSION | sed 's/^go//')"-bookworm) ;;
*)
	echo "the Dockerfile wants $tag, this machine has $(go version)" >&2
	exit 1
	;;
esac

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=git,ca-certificates bookworm "$root" >/dev/null
mkdir -p "$root/usr/local/go"
cp -a "$goroot/." "$root/usr/local/go/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

c=$(buildah from scratch)
buildah copy --quiet "$c" "$root" / >/dev/null
buildah config --env PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin --env GOTOOLCHAIN=local --workingdir /go "$c"
buildah commit --quiet "$c" "docker.io/library/$tag"
buildah rm "$c" >/dev/null
