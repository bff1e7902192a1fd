# A server that leaves its session, and pseudo-terminals.
# needs: tmux
t() { tmux -f /dev/null -S "$PWD/s" "$@"; }
t new-session -d -x 60 -y 8 'sh -c "echo in tmux; exec cat"'; for i in $(seq 100); do t capture-pane -p | grep -q 'in tmux' && break; sleep 0.05; done
t send-keys typed Enter; for i in $(seq 100); do [ "$(t capture-pane -p | grep -c typed)" = 2 ] && break; sleep 0.05; done; t capture-pane -p; t list-sessions -F '#{session_windows}'; t kill-server; echo ended
