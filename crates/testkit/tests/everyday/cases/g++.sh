# needs: g++
cat >p.cc <<'C'
#include <future>
#include <iostream>
#include <map>
#include <string>
#include <thread>
int main() {
    std::map<std::string, int> m{{"a", 1}, {"b", 2}};
    auto f = std::async(std::launch::async, [&] { int s = 0; for (auto &[k, v] : m) s += v; return s; });
    std::thread t([] { try { throw std::runtime_error("caught"); } catch (std::exception &e) { std::cout << e.what() << "\n"; } });
    t.join();
    std::cout << f.get() << "\n";
}
C
g++ -std=c++17 -O1 -pthread -o p p.cc && ./p
