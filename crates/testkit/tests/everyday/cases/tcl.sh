# needs: tclsh=tcl
cat >p.tcl <<'T'
puts [exec echo exec]; catch { exec sh -c "exit 3" } m o; puts [lindex [dict get $o -errorcode] 2]
set p [open "|cat" r+]; puts $p through; flush $p; gets $p l; puts $l; close $p
after 20 { set done 1 }; vwait done; puts [expr 6 * 7]; puts [lsort -integer {3 1 2}]
T
tclsh p.tcl
