#!/usr/bin/env bash
# Attacks a server with malformed HTTP and JSON beside streams that come and go:
# scripts/campaign.sh [-duration 10m] [-attacks N] [-seed N]. See tests/campaign.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go test ./tests/campaign -count=1 -v -timeout 24h -run 'TestCampaign|TestFewFiles' -args "$@"
