# needs: ipcmk=util-linux lsipc=util-linux
# semaphores
ipcmk -S 3 -p 0600 | sed 's/[0-9]*$//'; ipcs -s | awk '$5 == 3' | wc -l; ipcs -s | awk '$5 == 3 { print $2 }' | while read -r i; do perl -e 'semop($ARGV[0], pack("s3", 1, 2, 0)) or die' "$i"; ipcs -s -i "$i" | tail -4 | head -3 | awk '{ print $1, $2, $3, $4 }'; ipcrm -s "$i"; done
ipcmk -M 4096 | sed 's/[0-9]*$//'; ipcs -m | awk '$5 == 4096 && $6 == 0 { print $2 }' | while read -r i; do ipcrm -m "$i"; done
