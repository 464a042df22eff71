// SPDX-License-Identifier: Apache-2.0
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** What the job is asked to do: `name=value` arguments as flink_java.py writes them. */
final class Work implements Serializable {
    private static final long serialVersionUID = 1;

    final long rows;
    final long warmUpRows;
    final boolean ordered;
    final int calls;
    final long timeoutMillis;
    /** Rows between watermarks; 0 for none. */
    final long watermarkEvery;
    /** Rows a second; 0 for as fast as they are taken. */
    final double rate;
    /** Address of the table of the HTTP server; empty for simulated calls. */
    final String url;
    /** Of several destinations, where the first is looked up, which never answers. */
    final String silentUrl;
    final long destinations;
    final long keys;
    /** Microseconds of call `id % length`; null for calls that return at once. */
    final long[] delays;

    Work(String[] arguments) throws Exception {
        Map<String, String> values = new HashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            values.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        rows = Long.parseLong(values.get("rows"));
        warmUpRows = Long.parseLong(values.get("warm_up_rows"));
        ordered = values.get("mode").equals("ordered");
        calls = Integer.parseInt(values.get("calls"));
        timeoutMillis = Long.parseLong(values.get("timeout_ms"));
        watermarkEvery = Long.parseLong(values.get("watermark_every"));
        rate = Double.parseDouble(values.get("rate"));
        url = values.get("url");
        silentUrl = values.get("silent_url");
        destinations = Long.parseLong(values.get("destinations"));
        keys = Long.parseLong(values.get("keys"));
        delays = readDelays(values.get("delays"));
    }

    private static long[] readDelays(String path) throws Exception {
        if (path.isEmpty()) {
            return null;
        }
        List<String> lines = Files.readAllLines(Path.of(path));
        return lines.stream().mapToLong(Long::parseLong).toArray();
    }

    /** Where a row is looked up. */
    String address(long id) {
        boolean answers = destinations == 1 || id % destinations > 0;
        return (answers ? url : silentUrl) + "/" + id % keys;
    }

    /** The microseconds that the call of a row takes. */
    long delayMicros(long id) {
        return delays == null ? 0 : delays[(int) (id % delays.length)];
    }
}
