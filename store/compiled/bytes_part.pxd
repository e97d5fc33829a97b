# What the pure Python mode of Cython has no words for. After a change raise the number in `built.OPTIONS`.
ctypedef unsigned int (*Crc32)(unsigned int, const unsigned char*, size_t) noexcept nogil
