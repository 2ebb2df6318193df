// What an app with the hook useStream does, under jsdom: node api_hook.mjs URL TOKEN, beside node_modules.
import { JSDOM } from "jsdom";
const dom = new JSDOM("<!doctype html><div id=root></div>", { url: "http://localhost:3000/" });
globalThis.window = dom.window; globalThis.document = dom.window.document;
globalThis.navigator = dom.window.navigator;
globalThis.sessionStorage = dom.window.sessionStorage;
const React = (await import("react")).default;
const { createRoot } = await import("react-dom/client");
const { useStream } = await import("@langchain/langgraph-sdk/react");
const [apiUrl, apiKey] = process.argv.slice(2);

function mounted(options) {
  const box = { seen: [] };
  function App() {
    const [threadId, setThreadId] = React.useState(options.threadId ?? null);
    box.threadId = threadId;
    box.stream = useStream({ apiUrl, apiKey, ...options, threadId, onThreadId: setThreadId,
      fetchStateHistory: true, onError: (e) => box.seen.push(["error", String(e)]), onCustomEvent: (e)=>box.seen.push(["custom", JSON.stringify(e)]) });
    box.seen.push(box.stream.messages?.map?.((m) => m.content).join("|"));
    return null;
  }
  box.root = createRoot(document.createElement("div"));
  box.root.render(React.createElement(App));
  return box;
}
const until = async (what, ok) => {
  for (let i = 0; i < 3000; i++) { try { if (ok()) return; } catch {} await new Promise((r) => setTimeout(r, 20)); }
  throw new Error(`never: ${what}`);
};
const said = {};
let box = mounted({ assistantId: "talk", messagesKey: "messages" });
await until("mounted", () => box.stream);
box.stream.submit({ messages: [{ type: "human", content: "hi", id: "a" }] }, { streamMode: ["values", "messages-tuple"], streamSubgraphs: true, streamResumable: true, optimisticValues: (p) => p });
await until("answer", () => !box.stream.isLoading && box.stream.messages.length === 2);
said.tokens = [...new Set(box.seen)].filter((x) => typeof x === "string");
said.messages = box.stream.messages.map((m) => [m.type, m.content]);
await until("history", () => box.stream.history.length >= 2);
const meta = box.stream.getMessagesMetadata(box.stream.messages[1], 1);
// regenerate: fork from the checkpoint before the answer
box.stream.submit(undefined, { checkpoint: meta.firstSeenState.parent_checkpoint, streamMode: ["values"] });
await until("loading", () => box.stream.isLoading);
await until("again", () => !box.stream.isLoading);
await until("the fork", () => box.stream.history.some((one) => one.metadata.source === "fork"));
said.history = box.stream.history.map((one) => [one.metadata.source, one.next.join()]);
box.root.unmount();
// interrupt
box = mounted({ assistantId: "ask" });
await until("mounted", () => box.stream);
box.stream.submit({ topic: "tea" });
await until("interrupt", () => !box.stream.isLoading && box.stream.interrupt);
said.interrupt = box.stream.interrupt.value;
box.stream.submit(undefined, { command: { resume: "Yes." } });
await until("resumed", () => !box.stream.isLoading && box.stream.values.text === "Yes.");
said.values = box.stream.values; said.interruptAfter = box.stream.interrupt ?? null;
box.root.unmount();
// stop
box = mounted({ assistantId: "slow" });
await until("mounted", () => box.stream);
box.stream.submit({ topic: "300" });
await until("working", () => box.stream.isLoading && box.stream.values.text);
await box.stream.stop();
await until("stopped", () => !box.stream.isLoading);
said.stopped = true;
box.root.unmount();
console.log(JSON.stringify(said));
process.exit(0);
