import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin and the programs beside this file in one JVM, one after the other: a JVM of its own for each takes a second of CPU.
 *
 * A line of stdin is a main class and its arguments, separated by tabs. What it prints goes to stdout, then a line: `=== done`, or
 * `=== failed` when it threw something or ended the JVM with another status than 0.
 */
public class Clients {
    /** What ends a JVM ends one program here. */
    static class Exited extends SecurityException {
        final int status;

        Exited(int status) {
            this.status = status;
        }
    }

    @SuppressWarnings("removal")
    static class NoExit extends SecurityManager {
        @Override
        public void checkExit(int status) {
            throw new Exited(status);
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
        }
    }

    @SuppressWarnings("removal")
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setSecurityManager(new NoExit());
        System.setErr(System.out);
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t", -1);
            forgetVerbs();
            boolean isDone = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            System.out.println();
            System.out.println(isDone ? "=== done" : "=== failed");
            System.out.flush();
        }
        System.setSecurityManager(null);
        Runtime.getRuntime().halt(0); // clients that still live have threads that would go on
    }

    /** Some verbs of mqadmin keep the client that they have shut down. */
    private static void forgetVerbs() throws ReflectiveOperationException {
        Field verbs = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        verbs.setAccessible(true);
        ((List<?>) verbs.get(null)).clear();
    }

    private static boolean run(String program, String[] args) throws ReflectiveOperationException {
        try {
            Class.forName(program).getMethod("main", String[].class).invoke(null, (Object) args);
            return true;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exited) {
                return ((Exited) thrown.getCause()).status == 0;
            }
            thrown.getCause().printStackTrace();
            return false;
        }
    }
}
