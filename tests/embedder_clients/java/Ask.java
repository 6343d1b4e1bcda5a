import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** `java Ask.java URL MODEL` asks with the client of the JDK, which offers HTTP/2 with its first request. */
public class Ask {
    public static void main(String[] arguments) throws Exception {
        String text = "The NAS is backed up to the second disk every night at three.";
        String body = "{\"model\": \"" + arguments[1] + "\", \"input\": [\"" + text + "\"]}";
        HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0] + "/v1/embeddings"))
                .header("content-type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        int begin = answer.body().indexOf("[", answer.body().indexOf("\"embedding\":"));
        System.out.println(answer.body().substring(begin, answer.body().indexOf("]", begin) + 1));
    }
}
