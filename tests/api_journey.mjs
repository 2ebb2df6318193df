// The journey of a thread, in JavaScript: node api_journey.mjs URL TOKEN, beside node_modules with the SDK.
import { Client } from "@langchain/langgraph-sdk";

const [apiUrl, apiKey] = process.argv.slice(2);
const client = new Client({ apiUrl, apiKey });
const said = [];
const { thread_id: thread } = await client.threads.create();
const started = client.runs.stream(thread, "ask", { input: { topic: "tea" }, streamMode: ["values", "updates"] });
for await (const part of started) said.push(part.event);
const state = await client.threads.getState(thread);
said.push(state.next, state.tasks[0].interrupts[0].value.question);
const copy = await client.threads.copy(thread);
said.push(await client.runs.wait(thread, "ask", { command: { resume: "Yes." } }));
said.push(await client.runs.wait(copy.thread_id, "ask", { command: { resume: "No." } }));
said.push((await client.threads.getHistory(thread)).map((one) => one.next.join()));
const other = (await client.threads.create()).thread_id;
const slow = await client.runs.create(other, "slow", { input: { topic: "300" } });
for await (const part of client.runs.joinStream(other, slow.run_id)) if (part.event === "values") break;
await client.runs.cancel(other, slow.run_id, true);
said.push((await client.runs.get(other, slow.run_id)).status, (await client.threads.get(other)).status);
console.log(JSON.stringify(said));
