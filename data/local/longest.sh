#!/bin/sh
# Length of the longest line of a file.
awk 'length($0) > n {n = length($0)} END {print n}' "$1"
