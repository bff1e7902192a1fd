# Python's own tests of this subject; the number of those that passed is the same.
# needs: python-tests=libpython3-testsuite
"$PYTHON" -m test -q -u none --timeout 200 test_select 2>&1 | grep -E '^(Result|Tests result|[0-9]+ tests? (OK|failed|skipped)|    test_|FAIL|ERROR)' | sed 's/Tests result/Result/' || true
