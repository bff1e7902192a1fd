# tar, which starts its compressors, and these with threads.
# needs: tar xz=xz-utils gzip bzip2 zstd cpio
# sample
mkdir d; for i in 1 2 3; do seq $((i * 1000)) >d/$i; done; ln -s 1 d/link; ln d/2 d/hard; mkfifo d/fifo
for z in gzip xz bzip2 zstd; do tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -I $z -cf $z.tar d; rm -rf out; mkdir out; tar -xf $z.tar -C out; (cd out && find d | sort | xargs ls -ld | cut -c1-10 | md5sum; cat out/d/3 d/3 2>/dev/null | md5sum); done
xz -T2 -c d/3 | xz -dc | cmp - d/3 && echo xz; find d -type f | sort | cpio -o --quiet -H newc --reproducible | cpio -it --quiet
dpkg-deb --version | head -1 | wc -l
