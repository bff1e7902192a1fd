# needs: cmake ninja=ninja-build gcc
cat >CMakeLists.txt <<'M'
cmake_minimum_required(VERSION 3.13)
project(p C)
enable_testing()
add_library(q SHARED q.c)
add_executable(p p.c)
target_link_libraries(p q)
add_test(NAME runs COMMAND p)
M
echo 'int q(void) { return 42; }' >q.c
printf '#include <stdio.h>\nint q(void);\nint main(void) { printf("%%d\\n", q()); return 0; }\n' >p.c
cmake -G Ninja -B build . >log 2>&1 || { cat log; exit 1; }
ninja -C build >log 2>&1 || { cat log; exit 1; }
build/p && (cd build && ctest 2>&1 | grep -o "100% tests passed.*")
