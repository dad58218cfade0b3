/*! sources sha256 264671d9248d7e324ef4c37b858d5e1ccd863f5a982e4896a7272341be1becd5 */
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
(()=>{var[l,T]=[250,5e3],v=4e4,p=30,c=class{constructor(e,t){this.receive=e,this.note=t,this.watches=new Map,this.wait=l,this.isPaused=!1,this.abort=null,this.timer=null}watch(e,t,n=0){this.watches.set(e,{topic:t,seq:n}),this.reopen(p)}unwatch(e){this.watches.delete(e)&&this.reopen(p)}pause(){this.isPaused=!0,this.close()}resume(){this.isPaused=!1,this.wait=l,this.reopen(0)}close(){clearTimeout(this.timer),this.timer=null,this.abort?.abort(),this.abort=null}reopen(e){this.isPaused||(clearTimeout(this.timer),this.timer=setTimeout(()=>{this.close(),this.watches.size&&this.open()},e))}async open(){let e=this.abort=new AbortController,t=new URLSearchParams;for(let[s,{topic:o,seq:r}]of this.watches)t.append("watch",`${s}:${o}${r?`@${r}`:""}`);try{let s=await fetch(new URL(`events?${t}`,q()),{credentials:"same-origin",signal:e.signal,headers:{accept:"text/event-stream"}});if(s.status===401){this.note("signed out");return}if(!s.ok)throw new Error(`the server answered ${s.status}`);await this.read(s.body,e)}catch{}if(this.abort!==e)return;this.note("lost");let n=this.wait*(.5+Math.random());this.wait=Math.min(T,this.wait*2),this.reopen(n)}async read(e,t){let n=e.pipeThrough(new TextDecoderStream).getReader(),s="";for(;;){let o=setTimeout(()=>t.abort(),v),{done:r,value:g}=await n.read();if(clearTimeout(o),r)return;let m=(s+g).split(`

`);s=m.pop();for(let b of m)this.take(b,t)}}take(e,t){if(this.abort!==t)return;let n=e.split(`
`).find(r=>r.startsWith("data: "));if(!n)return;let s=JSON.parse(n.slice(6));s.open&&(this.wait=l,this.note("live"));let o=this.watches.get(s.to);o&&(s.reset&&(o.seq=0),s.seq&&(o.seq=s.seq),this.receive(s.to,s))}};function q(){return globalThis.document?new URL("console/",document.baseURI):new URL(".",globalThis.location.href)}var a=new Map,u=0,w="connecting",f=new Set,h=new c((i,e)=>{let{port:t,own:n}=a.get(i);t.postMessage({own:n,message:e})},i=>{w=i;for(let e of f)e.postMessage({state:w})});function d(i){f.delete(i);for(let[e,t]of a)t.port===i&&(a.delete(e),h.unwatch(e))}globalThis.addEventListener("connect",({ports:[i]})=>{f.add(i),i.addEventListener("message",({data:e})=>{if(e.watch)u+=1,a.set(u,{port:i,own:e.watch}),h.watch(u,e.topic,e.seq);else if(e.unwatch)for(let[t,n]of a)n.port!==i||n.own!==e.unwatch||(a.delete(t),h.unwatch(t));else e.retry?h.resume():e.leave?d(i):e.lock&&navigator.locks?.request(e.lock,()=>d(i))}),i.start(),i.postMessage({state:w})});})();
