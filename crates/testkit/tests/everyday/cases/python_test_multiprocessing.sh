# The basics of processes by fork: locks, queues, connections.
# needs: python-tests=libpython3-testsuite
"$PYTHON" -m test -q -u none --timeout 250 test_multiprocessing_fork -m '*.WithProcessesTestLock.*' -m '*.WithProcessesTestSemaphore.*' -m '*.WithProcessesTestQueue.test_fork' -m '*.WithProcessesTestConnection.*' 2>&1 | grep -E '^(Result|Tests result|FAIL|ERROR)' | sed 's/Tests result/Result/'
