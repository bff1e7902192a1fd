# Name services and their plug-ins, locales, time zones.
# sample
getent passwd root | cut -d: -f1,3; getent hosts localhost | awk '{ print $2 }'; id -un; id nobody; date -u -d @0; TZ=Europe/Berlin date -d @0 +%H; locale charmap; hostname >/dev/null && echo named; printf '\303\244\n' | wc -m; iconv -f utf-8 -t latin1 <<X | od -An -tx1
ä
X
