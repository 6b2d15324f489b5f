#!/usr/bin/env bash
# Neovim >= 0.12 into the folder $1, unpacked from Debian's testing suite beside the machine's own
# packages, which stay as they are. Needs debootstrap. The folder may be moved afterwards.
#
# Testing moves on, so packages whose name carries a version are matched by pattern. The program
# runs with the C library that it came with; what it starts runs with the machine's.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
packages=(libc6_ libgcc-s1_ neovim_ neovim-runtime_ libluajit-5.1-2_ libtree-sitter0
  libunibilium4_ libutf8proc libuv1 lua-lpeg_ lua-luv_ libmsgpack-c)

debootstrap --variant=minbase --download-only --include=neovim testing "$folder/download" \
  >"$folder/debootstrap.log" 2>&1 || { tail -n 5 "$folder/debootstrap.log" >&2; exit 1; }
mkdir -p "$folder/root"
for package in "${packages[@]}"; do
  for archive in "$folder/download/var/cache/apt/archives/$package"*.deb; do
    [ ! -e "$archive" ] || dpkg -x "$archive" "$folder/root"
  done
done
rm -rf "$folder/download"

cat >"$folder/nvim" <<'SCRIPT'
#!/usr/bin/env bash
root=$(dirname "$(readlink -f "$0")")/root
libraries=$root/usr/lib/$(uname -m)-linux-gnu
loader=$(find "$root" -name 'ld-linux*.so.*' -print -quit)
export VIMRUNTIME=$root/usr/share/nvim/runtime
exec "$loader" --library-path "$libraries" --argv0 nvim "$root/usr/bin/nvim" "$@"
SCRIPT
chmod +x "$folder/nvim"
"$folder/nvim" --version | head -n 1
