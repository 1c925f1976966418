// Members that C++20 added to string streams, and libstdc++ in GLIBCXX_3.4.29: see older_symbols.py. The headers leave
// them to libstdc++.so; torch's libraries export them from 2.12 on. Here they are instantiated once more.
#include <sstream>

#if defined(__GLIBCXX__) && _GLIBCXX_RELEASE >= 12 && __cplusplus >= 202002L
template std::string std::basic_stringbuf<char>::str() const &;
template std::basic_stringbuf<char>::basic_stringbuf(std::string&&, std::ios_base::openmode);
template std::basic_stringstream<char>::basic_stringstream(std::string&&, std::ios_base::openmode);
#endif
