# A static program of one's own, started among others.
# needs: gcc
echo 'int main(void) { return 3; }' >p.c; gcc -static -o p p.c; ./p || echo $?; env -i ./p || echo $?; gcc -static-pie -o q p.c && ./q || echo $?
