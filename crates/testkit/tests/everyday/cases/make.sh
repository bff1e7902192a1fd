# A parallel build: the job server hands out tokens through a pipe.
# needs: make gcc
# sample
for i in 1 2 3 4 5 6 7 8; do echo "int f$i(void) { return $i; }" >f$i.c; done
cat >Makefile <<'M'
objects = f1.o f2.o f3.o f4.o f5.o f6.o f7.o f8.o
libf.a: $(objects); @ar rcs $@ $^; echo made
%.o: %.c; @$(CC) -c -o $@ $<
again:; @$(MAKE) --no-print-directory -C . libf.a
fail:; @exit 3
M
make -j4 && ar t libf.a && make again && make -q libf.a && make fail 2>&1 | sed 's/Makefile:[0-9]*/Makefile/' || true
