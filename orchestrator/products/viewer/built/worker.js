/*! sources sha256 d68b3560878e3843527060c2928494a304dbd34b3773926d517de003294c57b0 */
/*! with d3-hierarchy 3.1.3:
Copyright 2010-2026 Mike Bostock

Permission to use, copy, modify, and/or distribute this software for any purpose
with or without fee is hereby granted, provided that the above copyright notice
and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND
FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS
OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER
TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE.
*/
(()=>{var v="orchestrator page secret",E="x-console-secret";function L(){return localStorage.getItem(v)??""}function m(t,e=L()){return{...t,[E]:e}}var[l,R]=[250,5e3],S=4e4,d=30,a=class{constructor(e,s){this.receive=e,this.note=s,this.watches=new Map,this.secret="",this.wait=l,this.isPaused=!1,this.abort=null,this.timer=null}watch(e,s,o=0){this.watches.set(e,{topic:s,seq:o}),this.reopen(d)}unwatch(e){this.watches.delete(e)&&this.reopen(d)}pause(){this.isPaused=!0,this.close()}resume(e=this.secret){this.secret=e,this.isPaused=!1,this.wait=l,this.reopen(0)}close(){clearTimeout(this.timer),this.timer=null,this.abort?.abort(),this.abort=null}reopen(e){this.isPaused||(clearTimeout(this.timer),this.timer=setTimeout(()=>{this.close(),this.watches.size&&this.open()},e))}async open(){let e=this.abort=new AbortController,s=new URLSearchParams;for(let[n,{topic:r,seq:i}]of this.watches)s.append("watch",`${n}:${r}${i?`@${i}`:""}`);try{let n=await fetch(new URL(`events?${s}`,k()),{credentials:"same-origin",signal:e.signal,headers:m({accept:"text/event-stream"},this.secret)});if(n.status===401){this.note("signed out");return}if(!n.ok)throw new Error(`the server answered ${n.status}`);await this.read(n.body,e)}catch{}if(this.abort!==e)return;this.note("lost");let o=this.wait*(.5+Math.random());this.wait=Math.min(R,this.wait*2),this.reopen(o)}async read(e,s){let o=e.pipeThrough(new TextDecoderStream).getReader(),n="";for(;;){let r=setTimeout(()=>s.abort(),S),{done:i,value:b}=await o.read();if(clearTimeout(r),i)return;let p=(n+b).split(`

`);n=p.pop();for(let T of p)this.take(T,s)}}take(e,s){if(this.abort!==s)return;let o=e.split(`
`).find(i=>i.startsWith("data: "));if(!o)return;let n=JSON.parse(o.slice(6));n.open&&(this.wait=l,this.note("live"));let r=this.watches.get(n.to);r&&(n.reset&&(r.seq=0),n.seq&&(r.seq=n.seq),this.receive(n.to,n))}};function k(){return globalThis.document?new URL("console/",document.baseURI):new URL(".",globalThis.location.href)}var c=new Map,u=0,w="connecting",f=new Set,h=new a((t,e)=>{let{port:s,own:o}=c.get(t);s.postMessage({own:o,message:e})},t=>{w=t;for(let e of f)e.postMessage({state:w})});function g(t){f.delete(t);for(let[e,s]of c)s.port===t&&(c.delete(e),h.unwatch(e))}globalThis.addEventListener("connect",({ports:[t]})=>{f.add(t),t.addEventListener("message",({data:e})=>{if(e.watch)u+=1,c.set(u,{port:t,own:e.watch}),h.watch(u,e.topic,e.seq);else if(e.unwatch)for(let[s,o]of c)o.port!==t||o.own!==e.unwatch||(c.delete(s),h.unwatch(s));else e.retry?h.resume(e.secret):e.leave?g(t):e.lock&&navigator.locks?.request(e.lock,()=>g(t))}),t.start(),t.postMessage({state:w})});})();
