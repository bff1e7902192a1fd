# needs: java=default-jdk-headless javac=default-jdk-headless
cat >P.java <<'J'
import java.util.concurrent.*; import java.util.stream.*;
public class P { public static void main(String[] a) throws Exception {
  System.out.println(IntStream.range(0, 100000).parallel().filter(n -> n % 7 == 0).count());
  var p = new ProcessBuilder("sh", "-c", "echo child; exit 3").redirectErrorStream(true).start(); System.out.print(new String(p.getInputStream().readAllBytes())); System.out.println(p.waitFor());
  var e = Executors.newFixedThreadPool(4); var s = new Semaphore(2); var f = IntStream.range(0, 8).mapToObj(n -> e.submit(() -> { s.acquire(); try { return n * n; } finally { s.release(); } })).collect(Collectors.toList()); int t = 0; for (var x : f) t += x.get(); System.out.println(t); e.shutdown();
  try { Object o = null; o.toString(); } catch (NullPointerException x) { System.out.println("npe"); } System.gc(); Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook"))); } }
J
javac P.java && java -Xmx64m -cp . P
