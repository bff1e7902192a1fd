# The basics of processes by fork, from Python's own tests: locks, semaphores, events, connections.
# needs: python-tests=libpython3-testsuite
cat >own_fork.py <<'P'
import unittest, test._test_multiprocessing
test._test_multiprocessing.install_tests_in_module_dict(globals(), "fork")
if __name__ == "__main__": unittest.main()
P
"$PYTHON" own_fork.py -k WithProcessesTestLock -k WithProcessesTestSemaphore -k WithProcessesTestEvent -k WithProcessesTestConnection -k WithProcessesTestProcess.test_process 2>&1 | grep -E '^(Ran|OK|FAIL|ERROR)' | sed 's/ in .*//'
