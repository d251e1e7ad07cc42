// An agent that learns. Beside "combee up --simulated" and "combee sim serve --port 8700" (a simulation).
import { Combee, wrapOpenAI } from "@combee/client";
import OpenAI from "openai";

const [address = process.env.COMBEE_GATEWAY_URL, model = "http://127.0.0.1:8700/v1"] = process.argv.slice(2);
if (!address) throw new Error("set COMBEE_GATEWAY_URL to the address that combee up prints, or give it as an argument");
const combee = new Combee(address);

const playbook = await combee.playbook("support/refunds", { fallback: "Be kind and exact." });
console.log("version", playbook.version);

const openai = wrapOpenAI(new OpenAI({ baseURL: model, apiKey: "none" }), {
  combee,
  playbook: "support/refunds",
  onEnd: (run) => run.outcome({ success: run.answer.includes("final_answer") }), // what your own checks say
});
for (const order of [1, 2, 3, 4]) {
  const messages = [{ role: "user", content: `Refund order ${order}?` }];
  const reply = await openai.chat.completions.create({ model: "simulated", messages });
  console.log(reply.choices[0].message.content);
}

const counts = await combee.close();
console.log(counts.delivered, "runs delivered");
