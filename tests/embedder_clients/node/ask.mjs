// `node ask.mjs CLIENT URL MODEL` has a client ask with its defaults, and prints the vector.
const text = "The NAS is backed up to the second disk every night at three.";
const [client, url, model] = process.argv.slice(2);

async function openai() {
  const { default: OpenAI } = await import("openai");
  const asking = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any" });
  return (await asking.embeddings.create({ model, input: [text] })).data[0].embedding;
}

async function langchain() {
  const { OpenAIEmbeddings } = await import("@langchain/openai");
  return new OpenAIEmbeddings({ model, apiKey: "any", configuration: { baseURL: `${url}/v1` } }).embedQuery(text);
}

console.log(JSON.stringify(await { openai, langchain }[client]()));
