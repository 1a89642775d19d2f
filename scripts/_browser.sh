# Sourced by scripts/test after _venv.sh: `find_browser` sets $TEST_BROWSER to a Chromium that starts, and says which.
starts() { command -v "$1" >/dev/null && "$1" --version >/dev/null 2>&1; } # a snap's stub is there, and does not start

system_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        starts "$name" && command -v "$name" && return
    done
    return 1
}

packaged_browser() { # as root, of a system with apt
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "installing chromium from the system's packages ..." >&2
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes chromium; } >/dev/null 2>&1
    system_browser
}

playwright_browser() {
    echo "installing Playwright's chromium ..." >&2
    local found libraries=
    [ "$(id -u)" = 0 ] && libraries=--with-deps
    # shellcheck disable=SC2086
    "$PY" -m playwright install $libraries chromium >/dev/null || return 1
    found=$("$PY" -c '
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(playwright.chromium.executable_path)')
    starts "$found" && echo "$found"
}

find_browser() {
    TEST_BROWSER=${TEST_BROWSER:-$(system_browser || packaged_browser || playwright_browser)} ||
        { echo "error: no browser was found or installed; put a Chromium into TEST_BROWSER=PATH" >&2; exit 2; }
    echo "browser: $TEST_BROWSER ($("$TEST_BROWSER" --version 2>/dev/null))" >&2
    export TEST_BROWSER
}
