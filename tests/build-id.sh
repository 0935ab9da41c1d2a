#!/bin/sh
# Prints the build id: version, plus the commit where there is one. One id for all programs of a build (HELLO compares).
v=$1
cd "$(dirname "$0")/.." || exit 1
g=$(git rev-parse --short=7 HEAD 2>/dev/null) || g=
d=
[ -z "$g" ] || git diff --quiet HEAD -- 2>/dev/null || d=-dirty
echo "$v${g:++g$g}$d"
