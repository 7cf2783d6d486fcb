// clickhouse_front.js FOLDER LOG PORT_FILE [PORT]: what "make interop" needs of ClickHouse's
// HTTP interface, in front of the real engine (npm's chdb runs it inside this process).
//
//	POST /?query=INSERT ... FORMAT JSONEachRow&SETTING=VALUE...		the body is the data
//	POST /															the body is the query
//
// Parameters other than the query, database, user and password are settings, as there.
// Each request is a line of LOG: its parameters as JSON.  It ends with its parent.

'use strict';

const fs = require('fs');
const http = require('http');
const { Session } = require('chdb');

const [folder, log, portFile, port] = process.argv.slice(2);
const parent = process.ppid;
const session = new Session(folder);

const quoted = (text) => "'" + text.replace(/\\/g, '\\\\').replace(/'/g, "\\'") + "'";

function statement(parameters, body) {
	const query = parameters.get('query');

	if (query === null)
		return body;
	const settings = [...parameters.keys()].filter((name) => !['query', 'database', 'user', 'password'].includes(name))
		.map((name) => `${name} = ${quoted(parameters.get(name))}`);
	const place = query.search(/ FORMAT /);
	const clause = settings.length ? ' SETTINGS ' + settings.join(', ') : '';

	return query.slice(0, place) + clause + query.slice(place) + '\n' + body;
}

async function answer(request, response, body) {
	const parameters = new URL(request.url, 'http://localhost').searchParams;
	let status = 200;
	let text = '';

	fs.appendFileSync(log, JSON.stringify(Object.fromEntries(parameters)) + '\n');
	try {
		text = (await session.queryAsync(statement(parameters, body), { format: 'TabSeparated' })).text();
	} catch (error) {
		status = [26, 27, 41, 72, 117].includes(error.clickhouseCode) ? 400 : 500;
		text = String(error.message);
	}
	response.writeHead(status, { 'Content-Length': Buffer.byteLength(text) });
	response.end(text);
}

const server = http.createServer((request, response) => {
	const parts = [];

	request.on('data', (part) => parts.push(part));
	// Not called when the connection breaks inside the body.
	request.on('end', () => answer(request, response, Buffer.concat(parts).toString()));
});

server.listen(Number(port || 0), '127.0.0.1', () => {
	fs.writeFileSync(portFile + '.new', String(server.address().port));
	fs.renameSync(portFile + '.new', portFile);
});
setInterval(() => { if (process.ppid !== parent) process.exit(1); }, 500);
