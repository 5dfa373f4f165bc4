// Reference of all endpoints, built from /openapi.json; nothing is loaded from another site.
import { h } from "./dom.js";

const content = document.getElementById("content");

/** Text of OpenAPI, in which backquotes mark code. */
const marked = (text = "") => text.split("`").map((part, number) => (number % 2 ? h("code", {}, part) : part));

const referenceName = (schema) => schema?.$ref?.split("/").pop();

function typeOf(schema = {}) {
  if (schema.$ref) return referenceName(schema);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  return schema.format ?? schema.type ?? "any";
}

function fields(schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) => h("tr", {},
    h("td", {}, h("code", {}, name)),
    h("td", {}, typeOf(field)),
    h("td", {}, marked(field.description)),
    h("td", {}, field.examples ? h("code", {}, JSON.stringify(field.examples[0])) : "")));
  const head = ["field", "type", "", "example"].map((text) => h("th", { scope: "col" }, text));
  return h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows));
}

function endpoint(method, path, about) {
  const answers = Object.entries(about.responses ?? {}).map(([status, answer]) => {
    const schema = Object.values(answer.content ?? {})[0]?.schema;
    const type = schema ? ` ${typeOf(schema)}` : "";
    return h("li", {}, h("code", {}, status), " ", marked(answer.description), type);
  });
  const bodies = Object.entries(about.requestBody?.content ?? {}).map(([kind, body]) => h("li", {},
    h("code", {}, kind), ` ${typeOf(body.schema)}`));
  const parameters = (about.parameters ?? []).map((parameter) => h("li", {},
    h("code", {}, parameter.name), ` (${parameter.in}) ${typeOf(parameter.schema)} `, marked(parameter.description)));
  return h("details", {},
    h("summary", {}, h("code", {}, `${method.toUpperCase()} ${path}`), " ",
      marked(about.description ?? about.summary)),
    parameters.length ? h("h4", {}, "Parameters") : "", h("ul", {}, ...parameters),
    bodies.length ? h("h4", {}, "Body") : "", h("ul", {}, ...bodies),
    h("h4", {}, "Answers"), h("ul", {}, ...answers));
}

const api = await (await fetch("../openapi.json")).json();
const sections = [h("p", {}, h("a", { href: "../lab" }, "← Back to the page")), h("h1", {}, `${api.info.title} ${api.info.version}`), h("p", {}, api.info.summary ?? "")];
for (const [path, methods] of Object.entries(api.paths)) {
  for (const [method, about] of Object.entries(methods)) sections.push(endpoint(method, path, about));
}
sections.push(h("h2", {}, "Types"));
for (const [name, schema] of Object.entries(api.components.schemas)) {
  sections.push(h("details", {}, h("summary", {}, h("code", {}, name)), fields(schema)));
}
content.replaceChildren(...sections);
