import random, unicodedata, sys
import pytest
from db.database import connection
from db.models import *
from db.text_index import *
def test_fuzz(store, engine):
    rnd=random.Random(5)
    alphabets=["abcdefghijklmnopqrstuvwxyz0123456789","e0123456789x","中文字한국カタ日a1","äöüßñéabc", "αβγдежзאבגابتקﻻ"]
    every=[chr(c) for c in range(0x80,0x30000) if chr(c).isalnum()]
    with connection():
        Dataset.create(id="d",tenant_id="t",name="d")
        DatasetDocument.create(id="x",tenant_id="t",dataset_id="d",name="n",digest="")
        texts=[]
        for i in range(1500):
            ws=[]
            for _ in range(6):
                a=rnd.choice(alphabets+[every])
                ws.append("".join(rnd.choice(a) for _ in range(rnd.randint(1,6))))
            texts.append(search_text(" ".join(ws)))
        for i,t in enumerate(texts):
            DatasetChunk.create(id=str(i),tenant_id="t",dataset_id="d",document_id="x",chunk_index=i,content="",search_text=t)
        bad=set(); n=0
        for i,t in enumerate(texts):
            for w in set(t.split()):
                n+=1
                want={str(j) for j,u in enumerate(texts) if w in u.split()} if n%10==0 else {str(i)}
                got={c.id for c in find_chunks("t",["d"],[w],5000)}
                if not want<=got or (n%10==0 and want!=got): bad.add((w,len(want),len(got)))
        print(engine,n,len(bad),[(w,[hex(ord(c))+unicodedata.category(c) for c in w if ord(c)>127][:3],a,b) for w,a,b in sorted(bad)][:40])
