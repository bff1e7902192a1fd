# needs: dpkg apt-get=apt
# sample
dpkg -l dpkg | tail -1 | cut -c1-2; dpkg -S /bin/sh 2>/dev/null | wc -l; dpkg-query -W -f '${Package}\n' bash dash; apt-get -s install dash 2>/dev/null | grep -c 'newest\|^0 upgraded'; apt-cache policy dash | sed -n 1p; dpkg --compare-versions 1.2-3 lt 1.2-4 && echo lt
mkdir -p t/DEBIAN; printf 'Package: t\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: d\n' >t/DEBIAN/control; dpkg-deb -b t t.deb >/dev/null; dpkg-deb -f t.deb Version
