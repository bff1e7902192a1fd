# needs: fakeroot-sysv=fakeroot
# semaphores
# sample
fakeroot-sysv sh -c 'touch a; chown 123:456 a; stat -c "%u:%g" a; tar --numeric-owner -cf t a; mknod dev c 1 3 && stat -c %F dev'; tar --numeric-owner -tvf t | awk '{ print $2 }'
